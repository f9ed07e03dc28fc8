"""Words that say what kind of work a prompt asks for, by category and in several languages.

Data only. An entry ending in `*` is a prefix, `_` joins the words of a phrase, and entries in Chinese or
Japanese script are matched as substrings because those scripts do not separate words. The categories are
shared by all languages, so that what is learnt in one language carries to the others.
"""

# ruff: noqa: E501  (tables of words)

from __future__ import annotations

CATEGORIES: dict[str, str] = {
    "prove": """prove proves proof proofs derive derivation show_that demonstrate_that disprove refute rigorous* deduce
        establish_that formally axiom* lemma* corollar* induction contradiction counterexample* conjectur* theorem*
        докаж* доказ* опроверг* вывед* вывод_формул* покажи_что строго теорем* лемм* контрпример* индукци* гипотез*
        demuestr* demostr* prueba_que pruebe* refut* deduce* deduzca* teorema* contraejemplo* rigur* muestra_que
        beweis* beweise* widerleg* herleit* leite_her zeige_dass satz_von gegenbeispiel* induktion*
        démontr* prouve* prouvez réfut* déduis* montre_que montrer_que théorème* contre-exemple*
        dimostra* confuta* teoremi prove_que demonstre provar contraexemplo*
        证明 推导 论证 反证 求证 反例 定理 引理 归纳法 严格 証明 導出 반증 증명""",
    "design": """design designs architect* blueprint protocol schema_for propose_a propose_an devise build_a_system invent
        come_up_with_a_scheme scheme mechanism framework pipeline specification
        спроектир* проектир* разработ* архитектур* предлож* придумай_схем* протокол* механизм* систем*
        diseñ* arquitectura* propon* propuesta protocolo* mecanismo* sistema idea_un
        entwirf* entwerf* entwurf* konzipier* konzept* architektur* protokoll mechanismus schlage_vor
        conçois conce* concevoir architecture* propose* protocole mécanisme
        progett* projet* proponi proponha arquitetura
        设计 架构 方案 机制 协议 设计一 構築 設計""",
    "analyse": """analyse analyze analysis analyz* analys* evaluat* assess* critique critici* compare comparing contrast
        trade-off* tradeoff* trade_off trade_offs weigh pros_and_cons implications argue argument* argues steelman discuss
        justify justification reconcile interpret synthes* distinguish consequences under_what_conditions which_would_you
        the_strongest objection* flaw flaws fallac* ethic* moral* paradox* causal* confound* bias* evidence
        проанализ* анализ* оцен* критик* сравн* взвес* аргумент* обоснуй* обоснов* последстви* компромисс* рассуди* противореч*
        парадокс* причин* возраж* ошибк*_в_рассужд* при_каких услови*
        analiz* análisis evalú* evalua* compara* contrast* argumenta* argumento* justific* implicaciones ventajas_y_desventajas
        paradoja* crític* objecion* bajo_qué_condiciones compromiso*
        analysier* analyse* bewert* vergleich* abwäg* wäge_ab erörter* begründ* argument* konsequenz* widerspr* paradox*
        kritisier* einwand* einwänd* unter_welchen beurteil* vor-_und_nachteil*
        analys* évalue* compare* argument* justifi* conséquence* critique* paradoxe
        analizza* valuta* confronta* argomenta* analise avalie compare* justifique
        分析 评估 评价 比较 权衡 论述 利弊 论据 后果 悖论 反驳 取舍 判断 矛盾 前提 条件 分析し 評価 比較""",
    "why": """why how_come what_explains what_causes explain_why root_cause
        почему зачем отчего из-за_чего в_чем_причина в_чём_причина
        por_qué porqué a_qué_se_debe cuál_es_la_causa
        warum wieso weshalb woran_liegt woher_kommt
        pourquoi perché por_que porquê
        为什么 为何 怎么会 原因 なぜ どうして 왜""",
    "explain": """explain explains explanation describe walk_me how_does how_do intuition
        объясн* поясн* опиши* расскажи как_работает как_устроен*
        explic* explíc* describe* cómo_funciona
        erklär* beschreib* erläuter* wie_funktioniert
        expliqu* décri* comment_fonctionne
        spiega* explique descreva
        解释 说明 讲解 阐述 説明""",
    "optimise": """optimi* minimi* maximi* efficient* performance complexity bottleneck* scal* speed_up throughput latency
        faster cost-effective worst-case asymptotic* o(n amorti* lower_bound upper_bound bound bounds
        оптимиз* оптимал* минимиз* максимиз* производительн* сложност* узк* быстре* масштаб*
        optimiz* óptim* minimic* maximic* rendimiento complejidad escalab* cuello_de_botella
        optimier* optimal* minimier* maximier* leistung* komplexität skalier* engpass*
        optimis* efficac* complexité ottimizza* otimiz*
        优化 最优 最小化 最大化 复杂度 瓶颈 性能 效率 最適 扩展""",
    "debug": """debug* deadlock* race_condition races leak leaks leaking crash* segfault* flaky intermittent* hang hangs stuck
        regression corrupt* memory_order undefined_behavio* stack_trace traceback reproduce* nondeterminis* only_in_production
        sometimes randomly occasionally under_load fails_with heisenbug* thread* mutex* lock locks async* oom heap
        отлад* взаимоблокир* гонк* утечк* пада* завис* иногда случайно под_нагрузк* поток* мьютекс* баг воспроизв*
        depur* bloqueo* interbloqueo condición_de_carrera fuga* a_veces aleatoriamente hilo* falla* cuelga
        debugg* deadlock* speicherleck* absturz* stürzt abstürz* manchmal sporadisch gelegentlich hängt unter_last fehlersuche
        blocage fuite* plante parfois aléatoire*
        死锁 竞态 泄漏 崩溃 偶尔 偶发 卡死 复现 并发 线程 内存 压测 报错 デッドロック""",
    "plan": """plan plans planning strategy strategies roadmap migrat* budget prioriti* phased rollout contingenc* milestones
        decide decision should_we should_i negotiat* restructur* risk risks risky scenario* stakeholder* incentive* policy
        план плана планы стратег* дорожн* мигр* бюджет* приоритет* риск* решени* стоит_ли переговор* сценари* стимул*
        plan_de planifica* estrateg* migra* presupuesto prioriza* riesgo* deberíamos debería negocia* escenario* incentivo*
        plan_für strateg* fahrplan migration* budget* priorisier* risik* sollten_wir soll_ich verhandl* szenari* anreiz*
        stratég* planifi* risque* devrions faut-il strategi* rischi* piano estratég* risco*
        规划 计划 策略 战略 迁移 预算 风险 应该 谈判 决策 优先级 激励 方案 计画""",
    "diagnose": """diagnos* differential patient patients mg symptom* dose dosing renal hepatic biops* ct mri ecg ekg egfr
        contraindicat* comorbid* prognos* lesion* fever sepsis anticoag* hypotens* hypertens* year-old creatinin* troponin
        patholog* chronic acute treatment therapy antibiotic* insulin pregnan* lactate murmur
        диагноз* пациент* мг симптом* доз* почеч* биопси* кт мрт скф противопоказан* лечени* терапи* хроническ* остр* анализы
        paciente* síntoma* dosis biopsia fiebre tratamiento crónic* agud* diagnóst* años_con
        patientin patienten symptom* dosis dosier* therapie behandlung fieber chronisch* akut* jähriger jährige diagnose*
        symptôme* fièvre traitement posologie paziente sintom* doença
        患者 诊断 鉴别 症状 治疗 剂量 mg 用药 岁 发热 慢性 急性 术后 感染 患児""",
    "law": """liable liabilit* clause contract* court courts statute* lawful* sue lawsuit plaintiff defendant tort negligen*
        jurisdiction* enforceab* breach landlord tenant gdpr copyright patent* infring* employee employer indemnif* precedent
        doctrine constitutional* appeal damages inherit* trust will_and
        договор* суд суда иск иска истец* ответчик* закон* ответственност* наследств* наследник* нарушени* оспор* гк_рф авторск*
        contrato* demanda* tribunal* ley cláusula* responsabilidad herencia heredero* incumplimiento legal despid*
        vertrag* klage* gericht* haftung* haftet gesetz* klausel* erbe erben kündig* schadensersatz rechtlich* anspruch dsgvo bgb
        contrat* tribunal responsabilité clause* héritage loi contratto legge tribunale
        合同 法院 起诉 赔偿 违约 条款 法律 责任 继承 劳动法 合法 诉讼 侵权 仲裁 契約""",
    "maths": """integer* prime primes irrational* rational real_numbers integral* converge* diverg* series sequence matrix matrices
        eigenvalue* determinant polynomial* derivative* differentiable continuous function_f topolog* manifold* group_of ring_of
        subgroup* isomorph* homomorph* modulo mod probability expected variance random distribution* combinatori* graph
        vertices edges colouring coloring bijection* countabl* uncountabl* infinite finite sqrt vector_space banach hilbert
        gcd divisib* divides permutation* inequality equation* martingale markov bayes* estimator likelihood game_theor* nash
        простых простые числ* иррациональн* интеграл* сход* ряд матриц* собственн* многочлен* производн* непрерывн* групп*
        кольц* вероятност* дисперси* граф вершин* уравнени* неравенств* бесконечн* делит*
        entero* primos irracional* convergen* matriz matrices polinomio* derivada* probabilidad varianza grafo ecuacion*
        infinit* desigualdad continua
        primzahl* irrational* ganze_zahl* konvergi* reihe matrix polynom* ableitung* stetig* wahrscheinlichkeit varianz
        ungleichung gleichung* unendlich* teilbar* eigenwert* graph*
        nombres_premiers irrationnel* convergen* matrice probabilité équation* primi numeri
        质数 素数 无理数 有理数 积分 收敛 级数 矩阵 特征值 多项式 导数 连续 概率 方差 期望 不等式 方程 无穷 整数 同余 図論 群 图论""",
    "systems": """distributed consensus raft paxos shard* replica* kafka concurren* eventual* consisten* idempoten* exactly-once
        exactly_once partition* multi-region failover rate_limit* rate_limiter quorum backpressure compiler garbage_collect*
        kernel tcp scheduler transaction* isolation serializab* mvcc index_on query_plan microservice* event_sourcing crdt*
        cache_invalidation stampede encryption cryptograph* zero-knowledge threat_model hash load_balanc* multi-tenant tenants
        распределенн* распределённ* консенсус* шард* реплик* согласованност* идемпотент* очеред* транзакци* кэш* лимит* нагрузк*
        distribuid* consenso réplica* consisten* transacci* particion* idempoten* cifrado colas multirregión
        verteilt* konsens* replik* konsisten* transaktion* partition* idempot* verschlüssel* warteschlang* mandant* rechenzentr*
        distribué* cohérence transactions réparti* distribuit* distribuíd*
        分布式 一致性 分片 副本 并发 事务 幂等 缓存 高可用 限流 消息队列 秒杀 微服务 加密 调度 索引 分散""",
    "hypothesis": """suppose assume assuming imagine given_that if_we if_i what_if hypothetical* would_happen consider let_x
        если_бы предположим допустим пусть представь что_если что_будет_если
        supón supongamos suponga imagina si_tuviera qué_pasaría_si
        angenommen nehmen_wir falls_wir stell_dir was_wäre_wenn was_passiert_wenn
        supposons imaginons et_si supponi suponha
        假设 假如 如果 假定 设想 要是""",
    "depth": """in_depth detailed deeply step_by_step comprehensive* thorough* nuance* exactly precisely generali* why_exactly
        and_why how_would_you tell_me_when what_would_you what_breaks where_does minimal_set necessary_and_sufficient
        if_and_only_if with_justification every_case edge_cases failure_modes invariants quantify estimate* stress-test
        подробно детально глубок* исчерпыва* обобщ* точно именно как_бы_вы как_бы_ты необходим* достаточн* крайн*_случа* оцените
        detallad* a_fondo exhaustiv* generaliz* exactamente paso_a_paso necesari*_y_suficient* casos_límite estima
        ausführlich detailliert* gründlich* verallgemein* genau schritt_für_schritt notwendig*_und_hinreichend randfälle schätze
        détaillé* approfondi* généralis* précisément dettagliat* approfondit*
        详细 深入 推广 逐步 精确 充分必要 边界情况 前提下 分别 给出理由 代价 量化 失败 如何保证 怎么保证""",
    "rewrite": """rewrite reword rephrase paraphrase tidy tidy_up polish proofread spellcheck fix_the_grammar fix_the_typos
        typos typo grammar punctuation shorten shorter politer polite nicer friendlier formal less_formal clean_up neaten edit
        make_this make_it sound sounds capitalize capitalise lowercase uppercase correct_the correct_this smoother
        перепиши перефразир* поправь* исправь* исправьте отредактир* сократи* вежливее опечатк* грамматик* запят* короче
        причеши приведи_в_порядок пунктуац* официальн* звучал*
        reescrib* reformul* corrige* corrígeme corregir acort* más_corto más_formal educado pule ortograf* gramatic* retoca
        umschreib* formuliere* umformulier* korrigier* kürz* kürzer höflich* tippfehler rechtschreib* grammatik* freundlich* glätte
        überarbeite* klingt
        réécri* reformule* corrige* raccourci* poli plus_court fautes orthographe
        riscriv* correggi* accorcia* reescreva corrija encurte
        改写 润色 修改 改得 改成 改一下 缩短 错别字 语法 通顺 礼貌 校对 精简 更正式 书き直 添削 改短""",
    "translate": """translate translation in_french in_spanish in_german in_english in_italian into_french into_spanish
        into_german into_english into_italian how_do_you_say into_russian into_chinese into_japanese
        перевед* перевод* на_английск* по-английски на_немецк* как_сказать по-немецки
        traduc* tradúc* al_inglés al_español en_inglés cómo_se_dice al_francés
        übersetz* ins_englische ins_deutsche auf_englisch auf_deutsch wie_sagt_man auf_spanisch
        traduis traduire en_anglais en_français traduci traduz*
        翻译 译成 用英语 英文怎么说 用英文 用法语 翻訳""",
    "summarise": """summar* tl;dr tldr key_points main_points gist in_brief recap condense bullet_points minutes action_items
        резюмир* кратк* подытож* суть основные_мысли главн*_мысл* тезис* выжимк*
        resum* en_breve puntos_clave síntesis ideas_principales
        zusammenfass* fasse fass kurzfassung stichpunkt* stichworte kernaussag*
        résume* résumé riassum* riassunto resuma
        总结 概括 摘要 要点 归纳 简述 概述 要約""",
    "format": """list lists extract convert format table bullet bullets sort alphabetical* json csv yaml markdown columns rows
        count_the remove_duplicates put_this turn_this pull_out fill_in rename reorder merge_these split_this number_these
        списк* списо* извлек* извлеч* преобраз* таблиц* отсортир* алфавит* столбц* строк* выпиши удали_дубл* посчитай
        lista extrae* extrae convierte convertir tabla ordena* alfabétic* columnas viñetas
        liste extrahier* wandle umwandel* tabelle sortier* alphabetisch spalten zeilen aufzähl* trage
        extrai* convertis tableau trie liste_de elenca estrai tabella
        列出 表格 提取 排序 转换 整理成 列表 转成 按字母 换算 去重 一览""",
    "factual": """capital who when where how_many how_much how_old how_long how_far what_year what_time which_country which_year
        what_day what_colour what_color population located born invented opposite plural spell spelled pronounce_the
        столиц* кто когда где сколько в_каком_году какого_цвета который_час население какой_год как_пишется
        quién cuándo dónde cuánt* cuántos qué_año qué_hora capital_de de_qué_color
        wer wann wo wie_viele wie_viel wie_alt wie_hoch wie_lange welches_jahr hauptstadt welche_farbe wie_schreibt
        qui_a quand où combien quelle_année capitale chi quando dove quanto quem onde
        首都 谁 什么时候 多少 几个 几点 哪年 哪里 哪个国家 等于几 多大 いつ 誰 どこ""",
    "define": """what_is what's whats what_does meaning mean means define definition synonym* antonym* stand_for stands_for
        another_word abbreviation acronym difference_between
        что_такое что_значит что_означает определени* синоним* антоним* как_расшифровыв*
        qué_es qué_significa significado sinónimo* definición cuál_es
        was_ist was_heißt was_bedeutet bedeutung synonym* definition
        qu'est-ce signifie définition cosa_significa o_que_é significa
        是什么 什么意思 定义 同义词 的意思 とは""",
    "greet": """hi hello hey hiya thanks thank cheers good_morning good_evening bye goodbye ok okay lol great perfect
        привет здравствуй* спасибо добр* пока ок ладно отлично пожалуйста
        hola gracias buenos_días buenas adiós vale perfecto
        hallo danke guten_morgen guten_tag tschüss okay super prima
        bonjour merci salut ciao grazie olá obrigad*
        你好 谢谢 早上好 晚上好 再见 好的 哈喽 こんにちは ありがとう""",
    "relay": """tool returned returns output result results response status success tell_the_user let_the_user reply_to_the_user
        inform_the_user function_result tool_result exit_code done user_asked user_wants relay confirm confirmation
        инструмент* вернул* ответ_инструмент* сообщи_пользовател* сообщи скажи_пользовател* результат*
        herramienta devolvió devuelto dile_al_usuario informa_al resultado* respuesta_de
        werkzeug tool_liefert lieferte ergebnis* sag_dem_nutzer teile_dem rückgabe ausgabe
        outil renvoyé dis_à_l'utilisateur strumento ferramenta
        工具 返回 告诉用户 结果 调用 回复用户 用户问 ツール""",
    "brief": """one_sentence one_line in_a_word briefly short quick quickly simply just only simple please pls no_explanation
        single_word yes_or_no two_sentences one_word one-line one-liner one_paragraph
        одним_предложением одной_строк* коротко быстро просто только одним_словом пожалуйста без_объяснен*
        una_frase una_línea brevemente corto rápido simplemente solo sólo por_favor una_palabra
        ein_satz einem_satz kurz schnell einfach nur bitte ein_wort
        une_phrase bref simplement juste s'il_te una_frase breve solo uma_frase
        一句话 一行 简短 简单 只要 一个词 帮我 请用 不用 一两句""",
    "snippet": """function_that reverse_a read_a regex formula excel python print loop for_loop command git bash html css button
        sql_query select convert_a_string rename_a variable hello_world import one-liner snippet script
        функци* формул* эксель excel питон* команд* скрипт* цикл* напиши_функц*
        función_que fórmula comando bucle script imprime
        funktion_die formel befehl schleife skript
        fonction_qui formule funzione formula função
        函数 公式 命令 脚本 循环 正则 打印 读取 関数""",
    "casual": """joke poem birthday message email caption recipe gift present_for tweet slogan name_for names_for haiku card
        invitation out-of-office reminder thank-you subject_line greeting story bedtime limerick toast ideas_for suggest
        шутк* анекдот стих* поздравл* сообщени* письмо рецепт* подарок* открытк* напоминани* приглашени* имя имен назван* идеи
        chiste poema cumpleaños mensaje correo receta regalo invitación recordatorio nombres cuento ideas_para
        witz gedicht geburtstag* nachricht e-mail mail rezept* geschenk* einladung* erinnerung namen geschichte ideen_für
        blague poème anniversaire courriel recette cadeau barzelletta ricetta compleanno piada receita aniversário
        笑话 生日 祝福 邮件 短信 菜谱 礼物 请假 通知 起名 名字 诗 食谱 文案 冗談""",
    "arith": """times plus minus divided_by percent percentage square_root multiplied sum add subtract how_much_is half
        celsius fahrenheit kilometers kilometres miles inches pounds ounces tip discount average grams litres minutes_in
        умножить разделить плюс минус процент* сколько_будет корень_из градус* километр* скидк* среднее
        más menos dividido por_ciento cuánto_es porcentaje raíz_cuadrada kilómetros
        mal plus geteilt prozent wurzel_aus wie_viel_ist kilometer grad umrechn*
        fois divisé pourcent quanto_fa percento
        乘以 除以 加 减 百分之 等于 平方根 公里 摄氏""",
    "solve": """find_all solve_for solve determine construct compute_the least_number smallest largest minimum_number maximum_number
        how_many_ways write_as explicit explicitly closed_form characterise characterize classify_all integers_x all_solutions
        найди_все найдите_все реши решите постро* сколькими_способами наименьш* наибольш* явн* определи_все опиши_все
        encuentra_todos halla resuelve construye determina explícit* de_cuántas_formas mínimo máximo justifíca*
        finde_alle bestimme löse konstruier* explizit* auf_wie_viele_arten kleinste größte minimal* maximal*
        trouve_tous résous résoudre construis détermine trova_tutti risolvi costruisci encontre resolva construa
        求出 求所有 解方程 构造 确定 多少种 最小值 最大值 显式 求解 所有整数 至少需要 最少""",
    "judge": """fair fairest fairly honest honestly wrong_with right_to justice duty dignity consent free_will meaning_of
        just_a rescue_it obedience coward* virtue dilemma beauty truth knowledge self conscious* identity exist exists
        честн* справедлив* право_на долг совест* достоинств* свобод* смысл* истин* сознани* зачем_жить трусост*
        just* justicia honest* deber dignidad libertad sentido verdad conciencia prudencia cobard* ético ética
        gerecht* fair ehrlich* pflicht würde freiheit sinn wahrheit gewissen bewusstsein moralisch* ethisch*
        juste justice honnête* devoir dignité liberté sens vérité conscience
        公平 正义 诚实 良心 尊严 自由 意义 真理 意识 道德 伦理 为了什么 幸福 正義""",
    "logs": """log logs attempt attempts retried retry timeout failed failing error errors warning instruction instructions agent
        autonomous access permission irreversible rollback stop_condition stop_conditions escalate conflicting disagree stuck
        журнал лог ошибк* попытк* повтор* откат* агент доступ* разрешени* необратим* расходятся
        registro intento* reintent* fallo falló error errores agente acceso permiso* irreversible
        protokoll versuch* fehlgeschlagen fehler agent zugriff freigabe* unumkehrbar* widersprechen
        journal échec erreur tentative agente errore accesso
        日志 重试 失败 错误 代理 权限 回滚 不可逆 复核 冲突 差异 矛盾的 停止条件""",
    "audience": """kid kids child children daughter son grandson granddaughter homework grandma grandpa mum mom dad toddler pupils
        year-old-friendly five-year-old ten-year-olds for_beginners school kindergarten classroom
        сын сына дочь дочка дочери ребенок ребёнок ребёнку ребенку детям детей уроки класса бабушк* дедушк* школ*
        hijo hija nieto nieta niño niña niños deberes abuela abuelo colegio escuela
        tochter sohn enkel enkelin kind kinder kindern hausaufgaben oma opa schule klasse grundschule
        fils fille enfant enfants devoirs mamie papi figlio figlia bambino bambini filho filha crianças
        孩子 儿子 女儿 小朋友 作业 奶奶 爷爷 幼儿园 小学生 子供 宿題""",
    "sentences": """sentence sentences line lines nearest roughly about_how approximately rough yes_or_no true_or_false words_or_less
        один_абзац предложения предложений предложении строчк* примерно двух_словах да_или_нет пару_слов
        frase frases líneas renglón aproximadamente sí_o_no más_o_menos
        sätze sätzen satz zeile zeilen ungefähr ja_oder_nein etwa stichwort
        phrases lignes environ oui_ou_non frasi righe circa linhas
        句话 两句 三句 大概 大约 是或否 是不是 一段 一下 吗 呢 行吗""",
}
"""Category -> entries, all lower case."""

NAMES: tuple[str, ...] = tuple(CATEGORIES)
